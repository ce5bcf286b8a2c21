uprobe0: 42 instructions
440d000  push rbp
440d001  mov rbp,rsp
440d004  sub rsp,10h
440d008  lea rsi,[40C100h]
440d00f  mov rsi,[rsi+8]
440d013  cmp rsi,0
440d017  jne 000000000440D0B2h
440d01d  mov rax,[rdi+0A8h]
440d024  mov [rbp-8],eax
440d027  lea rdi,[1080h]
440d02e  mov rsi,rbp
440d031  add rsi,0FFFFFFFFFFFFFFF8h
440d035  mov eax,[rsi]
440d037  cmp eax,100h
440d03d  jae 000000000440D076h
440d043  imul rax,8
440d04a  mov r9d,fs:[0FFFFFFFFFFFFFF64h]
440d053  cmp r9d,4
440d057  sbb r11d,r11d
440d05a  and r9d,r11d
440d05d  imul r9,800h
440d064  add rax,r9
440d067  lea r11,[1100h]
440d06e  add rax,r11
440d071  jmp 000000000440D078h
440d076  xor eax,eax
440d078  mov rdi,rax
440d07b  cmp rax,0
440d07f  je 000000000440D098h
440d085  mov esi,1
440d08a  lock add [rdi],rsi
440d08e  mov eax,0
440d093  jmp 000000000440D0B7h
440d098  lea rdi,[40C1C0h]
440d09f  mov esi,1
440d0a4  lock add [rdi],rsi
440d0a8  mov eax,0
440d0ad  jmp 000000000440D0B7h
440d0b2  mov eax,0
440d0b7  add rsp,10h
440d0bb  pop rbp
440d0bc  ret

